"""The cheapest wrong functions for the checks of lesson 17, see `autograder cheapest`."""


class Counting:
    def __init__(self, *sizes, **options):
        self.held, self.marks, self.kept = 0, set(), {}

    def __len__(self):
        return self.held

    def append(self, layer, k, v):
        return k, v

    def state(self, layer):
        return self.kept.get(layer)

    def keep(self, layer, S, tail):
        self.kept[layer] = S, tail

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


class Refusing(Counting):
    def truncate(self, n):
        raise CannotGoBack("never")


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


# %% every_split_keeps_the_same: the pair that was kept last, and as many rows as there is room
class HybridCache(Counting):
    def __init__(self, sizes, full, batch, max_len, **options):
        super().__init__()
        self.max_len = max_len

    def append(self, layer, k, v):
        if self.held + k.shape[2] > self.max_len:
            raise CacheFull("full")
        return k, v


# %% goes_back_or_refuses: the pair that was kept last, and every cut refused
class HybridCache(Refusing):
    pass


# %% a_refusal_changes_nothing: every cut refused
class HybridCache(Refusing):
    pass


# %% checkpoints_are_of_this_text: a list of lengths, without their states
class HybridCache(Counting):
    pass


# %% a_checkpoint_costs_a_state: a number
class HybridCache(Counting):
    def nbytes(self):
        return 38_400


# %% resume_leaves_a_token: nothing is spared
def resume_point(held, prompt, checkpoints):
    return 0
