"""The tokenizer that a model comes with, and whether an environment has the same tokens.

An environment says which tokenizer it uses in `metadata["tokenizer"]`; see `rollouts/env_protocol.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedModel
from transformers.utils import cached_file

from rlenv._checks import first_line

from ..policies import tokenizer_of
from .loading import base_of, find_config, has_adapter, model_folder

FILES = (  # one is enough
    "tokenizer_config.json", "tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "vocab.txt"
)  # fmt: skip


def with_tokenizer(env_kwargs: Mapping[str, Any] | None, policy: Any) -> Mapping[str, Any] | None:
    """Return the arguments of an environment of text, with the tokenizer that a policy brings.

    Args:
        env_kwargs: another tokenizer among them stays.
        policy: as for `policies.make_policy`.
    """
    given = env_kwargs or {}
    if not isinstance(named := given.get("tokenizer"), (str, Path, type(None))):
        return env_kwargs
    brought = tokenizer_of(policy)
    if brought is None or (named is not None and str(named) != brought):
        return env_kwargs
    return {**given, "tokenizer": brought}


def tokenizer_source(model: str | Path | PreTrainedModel) -> str | None:
    """Return the folder or id of the tokenizer that a model comes with; None if it has none.

    Args:
        model: a folder, a model id, or an object that was loaded from one of them.
    """
    if isinstance(model, PreTrainedModel):
        name = model.name_or_path
        return tokenizer_source(name) if name and (Path(name).is_dir() or _is_cached(name)) else None
    folder = Path(model_folder(model))
    if not folder.is_dir():
        return str(model)
    if any((folder / name).is_file() for name in FILES):
        return str(folder.resolve())
    return tokenizer_source(base_of(folder)[0]) if has_adapter(folder) else None


def brought_by(spec: Any) -> str | None:
    """Return `tokenizer_source` of a model, or of its folder or id; None for anything else.

    Raises:
        ValueError: for a model that does not exist or is not supported.
    """
    if isinstance(spec, (str, Path)):
        find_config(spec)
    elif not isinstance(spec, PreTrainedModel):
        return None
    return tokenizer_source(spec)


def check_tokens(tokenizer: Any, model: PreTrainedModel, known: Any = None) -> None:
    """Check that an environment's tokenizer gives no token another meaning than the model's.

    Args:
        tokenizer: of the environment.
        model: its tokenizer is looked for where it was loaded from.
        known: the policy's tokenizer, if it has one already.

    Raises:
        ValueError: naming a token that means something else.
    """
    source = tokenizer_source(model) if known is None else known.name_or_path
    if tokenizer is known or source is None or (known is None and source == tokenizer.name_or_path):
        return
    own = _read(source) if known is None else known
    meant = {index: token for token, index in own.get_vocab().items()}
    vocabulary = tokenizer.get_vocab().items()
    if others := sorted((index, token) for token, index in vocabulary if meant.get(index, token) != token):
        index, token = others[0]
        raise ValueError(
            f"the environment has another tokenizer than the model: token {index} of {len(tokenizer)} is {token!r}, "
            f"but {meant[index]!r} of {len(own)} for the model; make the environment with "
            f"tokenizer={repr(source) if source else 'policy.tokenizer'}"
        )


def check_teacher(metadata: Mapping[str, Any], model: Any, known: Any = None) -> Any:
    """Check that a teacher has exactly the tokens of an environment, and return its tokenizer.

    None, and nothing is checked, if the environment does not name its tokens, or a policy has no tokenizer yet.

    Args:
        metadata: of the environment.
        model: folder or id of the teacher's model; None for a policy.
        known: the tokenizer of a policy.

    Raises:
        ValueError: naming a token that means something else, or if the model has no tokenizer.
    """
    tokenizer = metadata.get("tokenizer")
    if tokenizer is None or (model is None and known is None):
        return None
    name = "" if model is None else f" {str(model)!r}"
    if known is None:
        find_config(model)
        if (source := tokenizer_source(model)) is None:
            raise ValueError(
                f"the teacher{name} has no tokenizer to compare with the student's; save it beside the model"
            )
        known = _read(source)
    ours, theirs = ({index: token for token, index in each.get_vocab().items()} for each in (tokenizer, known))
    if others := sorted(index for index in ours.keys() | theirs.keys() if ours.get(index) != theirs.get(index)):
        first, student, teacher = others[0], *(_said(each.get(others[0])) for each in (ours, theirs))
        raise ValueError(
            f"the teacher{name} has other tokens than its student: token {first} is {teacher} for the teacher and "
            f"{student} for the student ({len(theirs)} and {len(ours)} tokens); choose one with the same tokenizer"
        )
    return known


def check_ends(metadata: Mapping[str, Any], model: PreTrainedModel, tokenizer: Any) -> None:
    """Check that every token with which a teacher ends its answers ends an episode of the environment.

    Args:
        metadata: of the environment.
        model: of the teacher.
        tokenizer: of the teacher; None checks nothing.

    Raises:
        ValueError: naming a token that does not.
    """
    if tokenizer is None:
        return
    ends = model.generation_config.eos_token_id if model.generation_config is not None else None
    named = ends if isinstance(ends, list) else [ends]
    stops = set(metadata.get("stop_token_ids", ())) or {metadata["tokenizer"].eos_token_id}
    known = tokenizer.get_vocab().values()
    for end in [tokenizer.eos_token_id, *named]:
        if end is not None and end not in stops and end in known:
            raise ValueError(
                f"the teacher ends its answers with token {end}, {_said(tokenizer.convert_ids_to_tokens(end))}, which "
                "ends no episode of its student; make it a stop token (--stop-token), or choose another teacher"
            )


def _said(token: str | None) -> str:
    return "none" if token is None else repr(token)


def _read(source: str) -> Any:
    """Return the tokenizer in a folder, or of an id.

    Raises:
        ValueError: if it cannot be loaded.
    """
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # of whatever kind: transformers trusts the files, and tokenizers raises plain ones
        raise ValueError(f"the tokenizer of the model {source!r} cannot be loaded: {first_line(error)}") from error


def _is_cached(name: str) -> bool:
    """Tell whether this is the id of a model that was loaded on this machine."""
    try:
        found = cached_file(name, "config.json", local_files_only=True, _raise_exceptions_for_missing_entries=False)
    except OSError:
        return False
    return found is not None
