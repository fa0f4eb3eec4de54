"""Models taken elsewhere: plain C for small devices, and ONNX."""
