"""An engine without vLLM: a plain forward pass per token, with the faults that real engines have."""

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
        strange: a token that it writes first.
        sent: names of weights that it takes; None for all, "" for none.
        keeps_prefixes: whether it continues contexts as it did with older weights.
        temperature: by which it divides logits beside the one that is asked for.
    """

    def __init__(
        self,
        policy,
        surplus=0,
        short=10**6,
        shuffles=False,
        strange=None,
        sent=None,
        keeps_prefixes=False,
        temperature=1.0,
    ):
        self.policy, self.model = policy, copy.deepcopy(policy.model)
        self.surplus, self.short, self.shuffles, self.strange = surplus, short, shuffles, strange
        self.sent, self.keeps_prefixes, self.temperature = sent, keeps_prefixes, temperature
        self.prefixes, self.rounds, self.written = {}, [], {}
        self.loads = 0

    @torch.no_grad()
    def load(self, policy):
        self.loads += 1
        own = dict(self.model.named_parameters(remove_duplicate=False))
        for sent in weights_of(policy):
            if self.sent is None or (self.sent and self.sent in sent.name):
                own[sent.name].copy_(sent.whole())
        if not self.keeps_prefixes:
            self.prefixes = {}

    def write(self, requests):
        self.rounds.append(requests)
        places = range(len(requests))
        for place in reversed(places) if self.shuffles else places:
            request = requests[place]
            tokens, log_probs = self._turn(request)
            self.written[tuple(request.context), request.seed] = tokens
            beyond = [self.policy.vocab_size + 7] * self.surplus if len(tokens) == request.most else []
            yield Written(place, [*tokens, *beyond], [*log_probs, *[0.0] * len(beyond)])

    def choose(self, context, drawn):
        """Return the token to write after a context, for which this one was drawn; None ends the answer."""
        return drawn

    @torch.no_grad()
    def _turn(self, request):
        generator = torch.Generator().manual_seed(request.seed)
        if self.strange is not None:
            return [self.strange], [0.0]
        tokens, log_probs = [], []
        for _ in range(min(request.most, self.short)):
            context = (*request.context, *tokens)
            if context not in self.prefixes:
                self.prefixes[context] = self.model(torch.tensor([context])).logits[0, -1, : self.policy.vocab_size]
            scaled = self.prefixes[context].double() / ((request.temperature or 1.0) * self.temperature)
            drawn = torch.multinomial(scaled.softmax(-1), 1, generator=generator)
            token = self.choose(context, int(drawn if request.temperature else scaled.argmax()))
            if token is None:
                break
            tokens.append(token)
            log_probs.append(float(scaled.log_softmax(-1)[token]))
            if token in request.stop_token_ids:
                break
        return tokens, log_probs
