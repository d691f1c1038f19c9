"""Small GGUF files of the Llama kind, written as llama.cpp's converter writes them."""

import json

from gguf import GGUFWriter, TokenType

NAMES = {  # of transformers' weights in a layer, and of the file's
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(path, model, tokenizer, end_of_turn=None):
    """Write a Llama model and its byte-level BPE tokenizer as one file, weights in float32."""
    config = model.config
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer)
    if end_of_turn is not None:
        writer.add_eot_token_id(end_of_turn)
    for name, weight in model.state_dict().items():
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        if not (name.startswith("lm_head") and config.tie_word_embeddings):
            writer.add_tensor(_file_name(name), _as_llama_cpp(weight, heads))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer, tokenizer):
    words = sorted(tokenizer.get_vocab().items(), key=lambda word: word[1])
    special = set(tokenizer.all_special_ids)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([word for word, _ in words])
    writer.add_token_types([TokenType.CONTROL if index in special else TokenType.NORMAL for _, index in words])
    writer.add_token_merges([" ".join(pair) for pair in _merges(tokenizer)])
    writer.add_bos_token_id(tokenizer.eos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _merges(tokenizer):
    return json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]


def _file_name(name):
    stem, _, last = name.rpartition(".")
    if stem in OUTSIDE:
        return f"{OUTSIDE[stem]}.{last}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.{last}"


def _as_llama_cpp(weight, heads):
    """Return a weight in the file's order: queries and keys have the halves of a rotation side by side."""
    array = weight.detach().float().numpy()
    if heads is None:
        return array
    rows, columns = array.shape
    return array.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
