"""Export of models: to plain C for small devices, and to ONNX."""
