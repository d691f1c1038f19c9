"""An engine without vLLM: a plain forward pass per token of all answers, with the faults that real engines have."""

import copy

import torch

from rlenv.agents.engines.base import Engine, Written, weights_of


class FakeEngine(Engine):
    """Writes with a copy of a policy's model.

    Args:
        policy: of language.
        surplus: tokens beyond those that were asked for, some beyond the vocabulary.
        short: the most tokens of one answer.
        shuffles: whether answers come in another order.
        sent: names of weights that it takes; None for all, "" for none.
        keeps_prefixes: whether it continues contexts as it did with older weights.
        temperature: by which it divides logits beside the one that is asked for.
    """

    def __init__(
        self, policy, surplus=0, short=10**6, shuffles=False, sent=None, keeps_prefixes=False, temperature=1.0
    ):
        self.policy, self.model = policy, copy.deepcopy(policy.model)
        self.surplus, self.short, self.shuffles = surplus, short, shuffles
        self.sent, self.keeps_prefixes, self.temperature = sent, keeps_prefixes, temperature
        self.prefixes, self.rounds = {}, []
        self.loads = 0

    @torch.no_grad()
    def load(self, policy):
        self.loads += 1
        own = dict(self.model.named_parameters(remove_duplicate=False))
        for name, weight in weights_of(policy):
            if self.sent is None or (self.sent and self.sent in name):
                own[name].copy_(weight)
        if not self.keeps_prefixes:
            self.prefixes = {}

    def write(self, requests):
        self.rounds.append(requests)
        turns, places = self.turns(requests), range(len(requests))
        for place in reversed(places) if self.shuffles else places:
            request, (tokens, log_probs) = requests[place], turns[place]
            beyond = [self.policy.vocab_size + 7] * self.surplus if len(tokens) == request.most else []
            yield Written(place, [*tokens, *beyond], [*log_probs, *[0.0] * len(beyond)])

    def choose(self, context, drawn):
        """Return the token to write after a context, for which this one was drawn; None ends the answer."""
        return drawn

    def turns(self, requests):
        """Return the tokens and the log-probabilities of each."""
        turns, going = [([], []) for _ in requests], [*range(len(requests))] if self.short else []
        generators = [torch.Generator().manual_seed(request.seed) for request in requests]
        while going:
            contexts = {place: (*requests[place].context, *turns[place][0]) for place in going}
            self._read({*contexts.values()} - self.prefixes.keys())
            for place, context in contexts.items():
                request, (tokens, log_probs) = requests[place], turns[place]
                scaled = self.prefixes[context].double() / ((request.temperature or 1.0) * self.temperature)
                drawn = torch.multinomial(scaled.softmax(-1), 1, generator=generators[place])
                token = self.choose(context, int(drawn if request.temperature else scaled.argmax()))
                if token is not None:
                    tokens.append(token)
                    log_probs.append(float(scaled.log_softmax(-1)[token]))
                most = min(request.most, self.short)
                if token is None or token in request.stop_token_ids or len(tokens) == most:
                    going.remove(place)
        return turns

    @torch.no_grad()
    def _read(self, contexts):
        """Keep the logits after each context, all read in one pass: what follows a token changes nothing."""
        if contexts:
            rows = sorted(contexts)
            longest = max(map(len, rows))
            padded = torch.tensor([row + (0,) * (longest - len(row)) for row in rows])
            logits = self.model(padded, use_cache=False).logits[..., : self.policy.vocab_size]
            self.prefixes |= {row: logits[n, len(row) - 1] for n, row in enumerate(rows)}
