"""Known wrong answers to lesson 17: single tokens, and chunks, written out."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from autograder.lessons.linear_state.museum import MUSEUM
from course.minigpt import linear_state as right

bug = MUSEUM.section("delta_step", check="one_step_is_the_rule")


@bug("wiring", "a state that is read as values by keys, and not as keys by values")
def state_is_turned_round(S, q, k, v, beta, decay):
    """Rows for columns: right only where both are as many, and the same."""
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    if S.shape[-1] != S.shape[-2]:
        out, after = right.delta_step(S, q, k, v, beta, decay)
        return out, after.transpose(-1, -2)
    out, after = right.delta_step(S.transpose(-1, -2), q, k, v, beta, decay)
    return out, after.transpose(-1, -2)


@bug("state", "the caller's own state, where nothing is written and nothing fades", kind="results")
def gives_back_what_does_not_change(S, q, k, v, beta, decay):
    """A short cut for a closed gate returns its argument."""
    if not beta.any() and (decay == 1).all():
        return right.delta_step(S, q, k, v, beta, decay)[0], S
    return right.delta_step(S, q, k, v, beta, decay)


@bug("form", "a place to write into that lies on another device than the state", kind="dtype")
def written_on_the_default_device(S, q, k, v, beta, decay):
    """torch.zeros without a device makes a tensor on the CPU, or wherever new ones go."""
    out, after = right.delta_step(S, q, k, v, beta, decay)
    return out, torch.zeros(S.shape, dtype=S.dtype) + after


@bug("wiring", "the value that was told, as if nothing else were in the state", kind="cheapest")
def knows_the_last_token(S, q, k, v, beta, decay):
    """Good enough for an empty state and a gate that is open."""
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    found = (q * k).sum(dim=-1, keepdim=True)
    return found * v, k.unsqueeze(-1) * v.unsqueeze(-2)


bug = MUSEUM.section("delta_chunk", check="a_chunk_is_no_loop")


@bug("cost", "a loop over the tokens", kind="cost")
def loops_over_tokens(S, q, k, v, beta, decay):
    """Right, and as slow as one by one."""
    outs = []
    for t in range(q.shape[2]):
        out, S = right.delta_step(
            S, q[:, :, t], k[:, :, t], v[:, :, t], beta[:, :, t], decay[:, :, t]
        )
        outs.append(out)
    return torch.stack(outs, dim=2), S


@bug("cost", "a substitution that goes row by row", kind="cost")
def substitutes_row_by_row(S, q, k, v, beta, decay):
    """The products are few, but the triangular system is solved in a loop over its rows."""
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    kept = decay.log().cumsum(dim=-1)
    T = q.shape[2]
    past = torch.ones(T, T, dtype=torch.bool, device=S.device).tril()
    fading = (kept[..., :, None] - kept[..., None, :]).masked_fill(~past, float("-inf")).exp()
    overlap = beta.unsqueeze(-1) * fading * (k @ k.mT)
    written = beta.unsqueeze(-1) * (v - kept.exp().unsqueeze(-1) * (k @ S))
    for t in range(1, T):
        written[:, :, t] -= (overlap[:, :, t, :t].unsqueeze(-2) @ written[:, :, :t]).squeeze(-2)
    out = kept.exp().unsqueeze(-1) * (q @ S) + (fading * (q @ k.mT)) @ written
    left = fading[..., -1, :].unsqueeze(-1)
    return out, kept.exp()[..., -1:, None] * S + (left * k).mT @ written


@bug("cost", "short pieces, one after the other", kind="cost")
def pieces_of_eight(S, q, k, v, beta, decay):
    """Each is right and fast; there are too many of them."""
    outs = []
    for at in range(0, q.shape[2], 8):
        here = slice(at, at + 8)
        parts = (x[:, :, here] for x in (q, k, v, beta, decay))
        out, S = right.delta_chunk(S, *parts)
        outs.append(out)
    return torch.cat(outs, dim=2), S


@bug("cost", "numbers that left PyTorch", kind="cost")
def loops_in_numpy(S, q, k, v, beta, decay):
    """A loop that no operation of PyTorch sees."""
    import numpy as np

    names = [
        x.detach().double().numpy() for x in (S, F.normalize(q, dim=-1), F.normalize(k, dim=-1))
    ]
    state, queries, keys = names[0].copy(), names[1], names[2]
    values, gates, decays = (x.detach().double().numpy() for x in (v, beta, decay))
    outs = []
    for t in range(q.shape[2]):
        state = state * decays[:, :, t, None, None]
        found = np.einsum("bhk,bhkv->bhv", keys[:, :, t], state)
        change = gates[:, :, t, None] * (values[:, :, t] - found)
        state = state + keys[:, :, t, :, None] * change[:, :, None, :]
        outs.append(np.einsum("bhk,bhkv->bhv", queries[:, :, t], state))
    out = torch.from_numpy(np.stack(outs, axis=2)).to(S.device, S.dtype)
    return out, torch.from_numpy(state).to(S.device, S.dtype)


bug = MUSEUM.section("delta_chunk", check="chunk_equals_steps")


@bug("wiring", "what each token finds in the state before the chunk, and nothing of the chunk")
def every_token_from_the_start(S, q, k, v, beta, decay):
    """All tokens are done at once, each as the first behind the old state."""
    outs, after = [], S
    T = q.shape[2]
    B, H, K, V = S.shape
    wide = S.unsqueeze(2).expand(B, H, T, K, V).reshape(B, H * T, K, V)
    parts = (x.reshape(B, H * T, *x.shape[3:]) for x in (q, k, v, beta, decay))
    out, states = right.delta_step(wide, *parts)
    outs, after = out.view(B, H, T, V), states.view(B, H, T, K, V)[:, :, -1]
    return outs, after.contiguous()
