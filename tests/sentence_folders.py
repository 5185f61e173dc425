"""Tiny encoders as folders of sentence-transformers, in the layouts that its versions write."""

import json
from pathlib import Path
from typing import Any

import transformers

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{index}" for index in range(40))]
CHAIN = ("Transformer", "Pooling", "Normalize")
PLACES = ("", "1_Pooling", "2_Normalize")
NEW = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}


def tiny_encoder(folder: Path, seed: int = 0) -> Path:
    """A bare BERT with 2 layers of 4 heads and its tokenizer."""
    library: Any = transformers
    transformers.set_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    config = library.BertConfig(**sizes, vocab_size=len(WORDS), max_position_embeddings=32, initializer_range=0.3)
    library.BertModel(config).save_pretrained(folder)
    (folder.parent / "vocab.txt").write_text("\n".join(WORDS))
    words = library.BertTokenizer(str(folder.parent / "vocab.txt"), model_max_length=32)
    words.save_pretrained(folder)
    return folder


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def modules(kinds: tuple[str, ...] = CHAIN, newest: bool = False) -> list[dict[str, Any]]:
    names = NEW if newest else {kind: f"sentence_transformers.models.{kind}" for kind in (*CHAIN, "Dense")}
    return [
        {"idx": number, "name": str(number), "path": place, "type": names[kind]}
        for number, (kind, place) in enumerate(zip(kinds, PLACES, strict=False))
    ]


def sentence_folder(folder: Path, newest: bool = False, pooling: str = "mean", kinds: tuple[str, ...] = CHAIN) -> Path:
    """The encoder with the files of sentence-transformers beside it, as 2.x or as 6.x writes them."""
    tiny_encoder(folder)
    write_json(folder / "modules.json", modules(kinds, newest))
    if newest:
        write_json(
            folder / "1_Pooling/config.json",
            {"embedding_dimension": 16, "pooling_mode": pooling, "include_prompt": True},
        )
        write_json(folder / "2_Normalize/config.json", {"module_input_name": "sentence_embedding"})
        text = {"method": "forward", "method_output_name": "last_hidden_state"}
        first = {"transformer_task": "feature-extraction", "modality_config": {"text": text}}
        write_json(folder / "sentence_bert_config.json", {**first, "module_output_name": "token_embeddings"})
        settings = {"model_type": "SentenceTransformer", "prompts": {"query": "", "document": ""}}
        write_json(folder / "config_sentence_transformers.json", {**settings, "similarity_fn_name": "cosine"})
    else:
        names = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
        modes = {name: mode == pooling for mode, name in names.items()}
        write_json(folder / "1_Pooling/config.json", {"word_embedding_dimension": 16, **modes})
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": 24, "do_lower_case": False})
    return folder


def texts(count: int, seed: int = 0) -> list[str]:
    """Sentences of made-up words, no two alike."""
    words = WORDS[5:]
    return [
        " ".join(words[(seed + index * (3 + place) + place * place) % len(words)] for place in range(3 + index % 6))
        + f" {words[index % len(words)]} {words[(index // len(words) + seed) % len(words)]}"
        for index in range(count)
    ]
