"""The ONNX target: graphs that onnxruntime and its like run without torch, transformers or kheads."""
