"""Small tokenizers in the shape of well-known families, made on the spot, each with a short chat template."""

from __future__ import annotations

import json
from collections.abc import Callable

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
CORPUS = [
    "system user assistant developer, you are a helpful assistant. What is 12+34= ? It is 46.",
    "im_start im_end begin_of_text start_header_id end_header_id eot_id end_of_turn start_of_turn model",
    "INST SYS endoftext eos bos pad unk begin sentence User: Assistant: The answer to the question is: yes\n\nno\n",
] * 20


def byte_level(
    template: str, special: str, eos: str, pad: str | None = None, bos: str | None = None, added: str = ""
) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer, as GPT-2, Qwen, Llama 3 and GPT-NeoX have it; `added` are not special."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trained(backend, special.split(), sorted(pre_tokenizers.ByteLevel.alphabet()))
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in added.split()])
    return made(backend, template, eos, pad, bos)


def sentence_piece(
    template: str, special: str, eos: str, bos: str, scheme: str, pad: str | None = None, **flags: bool
) -> PreTrainedTokenizerFast:
    """Return a BPE tokenizer with spaces as "▁" and byte fallback, as Llama 2, Mistral, Gemma and Phi-3 have it."""
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if scheme == "normalizer":
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(steps if scheme == "never" else [*steps, decoders.Strip(" ", 1, 0)])
    trained(backend, [*special.split(), *BYTES], [], **flags)
    state = json.loads(backend.to_str())
    state["added_tokens"] = state["added_tokens"][: len(special.split())]  # the bytes are ordinary tokens
    return made(Tokenizer.from_str(json.dumps(state)), template, eos, pad, bos, unk_token="<unk>")


def trained(backend: Tokenizer, special: list[str], alphabet: list[str], **flags: bool) -> None:
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        show_progress=False,
        initial_alphabet=alphabet,
        special_tokens=[AddedToken(text, special=True, normalized=False, **flags) for text in special],
    )
    backend.train_from_iterator(CORPUS, trainer)


def made(
    backend: Tokenizer, template: str, eos: str, pad: str | None, bos: str | None, **roles: str
) -> PreTrainedTokenizerFast:
    if bos is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, backend.token_to_id(bos))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=template, eos_token=eos, pad_token=pad, bos_token=bos,
        clean_up_tokenization_spaces=False, **roles,
    )  # fmt: skip


def chatml() -> PreTrainedTokenizerFast:
    """Qwen: the end of a turn is <|im_end|>, the end of a text <|endoftext|>; thinking is cut from old answers."""
    template = (
        "{% for m in messages %}{% set text = m.content %}"
        "{% if m.role == 'assistant' and '</think>' in text %}{% set text = text.split('</think>')[-1].lstrip('\n') %}"
        "{% endif %}<|im_start|>{{ m.role }}\n{{ text }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return byte_level(
        template, "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|>", "<|endoftext|>", "<|endoftext|>",
        added="<think> </think>",
    )  # fmt: skip


def llama3() -> PreTrainedTokenizerFast:
    """Llama 3: contents are trimmed; the template writes the beginning token, which the tokenizer would add as well."""
    template = (
        "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
        "{% if loop.first and m['role'] == 'system' %}Today Date: {{ strftime_now('%d %b %Y') }}\n\n{% endif %}"
        "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    )
    special = "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|python_tag|>"
    return byte_level(template, special, "<|eot_id|>", bos="<|begin_of_text|>")


def llama2(scheme: str = "first") -> PreTrainedTokenizerFast:
    """Llama 2 and Mistral: [INST] is ordinary text; the system prompt is put into the user's first message."""
    template = (
        "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set rest = messages[1:] %}"
        "{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
        "{% for m in rest %}{% if loop.first and system %}"
        "{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + m['content'] %}"
        "{% else %}{% set content = m['content'] %}{% endif %}"
        "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
        "{% else %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    )
    return sentence_piece(template, "<unk> <s> </s>", "</s>", "<s>", scheme)


def mistral() -> PreTrainedTokenizerFast:
    """Later Mistral: [INST] is special; an older way to write spaces."""
    template = (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}"
        "{% elif m.role == 'user' %}[INST] {{ m.content }}[/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}"
        "{% endfor %}"
    )
    return sentence_piece(template, "<unk> <s> </s> [INST] [/INST]", "</s>", "<s>", "normalizer")


def gemma() -> PreTrainedTokenizerFast:
    """Gemma: the assistant is called model; no prefix of spaces; trimmed."""
    template = (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '\n\n' %}"
        "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
        "{% for m in rest %}{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else 'user') + '\n'"
        " + (first if loop.first else '') }}{{ m['content'] | trim }}{{ '<end_of_turn>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
    )
    special = "<pad> <eos> <bos> <unk> <start_of_turn> <end_of_turn>"
    return sentence_piece(template, special, "<eos>", "<bos>", "never", "<pad>")


def phi3() -> PreTrainedTokenizerFast:
    """Phi-3: its special tokens swallow the spaces after them; pad and end are one token."""
    template = (
        "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    )
    special = "<unk> <s> <|endoftext|> <|system|> <|user|> <|assistant|> <|end|>"
    return sentence_piece(template, special, "<|endoftext|>", "<s>", "first", "<|endoftext|>", rstrip=True)


def qwen3() -> PreTrainedTokenizerFast:
    """Qwen 3: thoughts are tokens, but not special ones; the newest answer gets empty ones, older answers lose them."""
    template = (
        "{% for m in messages %}{% set content = m.content %}{% set thoughts = '' %}"
        "{% if m.role == 'assistant' and '</think>' in content %}"
        "{% set thoughts = content.split('</think>')[0].split('<think>')[-1] %}"
        "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and loop.last %}<think>\n{{ thoughts.strip('\n') }}\n</think>\n\n{% endif %}"
        "{{ content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
    )
    return byte_level(
        template, "<|endoftext|> <|im_start|> <|im_end|>", "<|im_end|>", "<|endoftext|>",
        added="<tool_call> </tool_call> <think> </think>",
    )  # fmt: skip


def deepseek_r1() -> PreTrainedTokenizerFast:
    """DeepSeek R1: the tokens around a turn are not special; the template begins the answer with <think>."""
    bos, eos = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
    template = (
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
        "{% elif m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}{% else %}"
        "{{ '<｜Assistant｜>' + m['content'].split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}"
    )
    return byte_level(template, f"{bos} {eos}", eos, bos=bos, added="<｜User｜> <｜Assistant｜> <think> </think>")


EVERY = (chatml, qwen3, llama3, llama2, mistral, gemma, phi3, deepseek_r1)
FAMILIES: dict[str, Callable[[], PreTrainedTokenizerFast]] = {each.__name__: each for each in EVERY}
