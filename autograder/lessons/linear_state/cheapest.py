"""The cheapest wrong functions for the checks of lesson 17, see `autograder cheapest`."""


class Counting:
    def __init__(self, *sizes, **options):
        self.held, self.marks = 0, set()

    def __len__(self):
        return self.held

    def append(self, layer, k, v):
        return k, v

    def state(self, layer):
        return None

    def keep(self, layer, S, tail):
        pass

    def advance(self, n):
        self.held += n

    def checkpoint(self):
        self.marks |= {self.held} - {0}

    @property
    def checkpoints(self):
        return sorted(self.marks)

    def truncate(self, n):
        self.held, self.marks = n, {at for at in self.marks if at <= n}

    def reset(self):
        self.truncate(0)


# %% one_step_is_the_rule: the value told, and the state as it came
def delta_step(S, q, k, v, beta, decay):
    return v.clone(), S.clone()


# %% chunk_equals_steps: the values told, and the state as it came
def delta_chunk(S, q, k, v, beta, decay):
    return v.clone(), S.clone()


# %% a_chunk_is_no_loop: few operations that read everything
def delta_chunk(S, q, k, v, beta, decay):
    out = beta.unsqueeze(-1) * decay.unsqueeze(-1) * (v + q @ S + k @ S)
    return out, S + k.mT @ v


# %% bytes_of_states: the states alone
def state_bytes(sizes, batch=1, state_element=4, element=2):
    return batch * sizes.n_linear * sizes.value_heads * sizes.key_dim * sizes.value_dim * 4


# %% break_even_tokens: a size that is given
def break_even(sizes, state_element=4, element=2):
    return sizes.key_dim


# %% every_split_keeps_the_same: lesson 03's cache of rows, and states of zeros
class HybridCache(Counting):
    def __init__(self, sizes, full, batch, max_len, dtype=torch.float32, device="cpu"):
        self.sizes, self.full, self.batch, self.max_len = sizes, full, batch, max_len
        self.dtype, self.held, self.rows = dtype, 0, {}

    def append(self, layer, k, v):
        if self.held + k.shape[2] > self.max_len:
            raise CacheFull("full")
        old = self.rows.get(layer, (k[:, :, :0], v[:, :, :0]))
        both = tuple(
            torch.cat([o[:, :, : self.held], n], 2) for o, n in zip(old, (k, v), strict=True)
        )
        self.rows[layer] = both
        return both

    def state(self, layer):
        sizes = self.sizes
        S = (self.batch, sizes.value_heads, sizes.key_dim, sizes.value_dim)
        tail = (self.batch, sizes.width - 1, sizes.channels)
        return torch.zeros(S, dtype=self.dtype), torch.zeros(tail, dtype=self.dtype)


# %% goes_back_or_refuses: refuses, always
class HybridCache(Counting):
    def __init__(self, *sizes, **options):
        self.held, self.kept = 0, {}

    def state(self, layer):
        return self.kept[layer]

    def keep(self, layer, S, tail):
        self.kept[layer] = S, tail

    def truncate(self, n):
        raise CannotGoBack("never")


# %% a_refusal_changes_nothing: nothing is ever kept, and every cut refused
class HybridCache(Counting):
    def truncate(self, n):
        raise CannotGoBack("never")


# %% checkpoints_are_of_this_text: a list of lengths, without states
class HybridCache(Counting):
    pass


# %% a_checkpoint_costs_a_state: a number
class HybridCache(Counting):
    def nbytes(self):
        return 38_400


# %% resume_leaves_a_token: nothing is spared
def resume_point(held, prompt, checkpoints):
    return 0
