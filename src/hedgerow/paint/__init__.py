"""The page to paint on: a local server for one user, the project it saves, and the worker that segments."""
