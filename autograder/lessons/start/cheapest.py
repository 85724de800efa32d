"""The cheapest wrong functions for the checks of lesson 00, see `autograder cheapest`."""


# %% flops_of_one_dot_product: the product of all arguments
def matmul_flops(m, k, n):
    return m * k * n


# %% flops_of_one_dot_product: twice the length of a row, whatever the product
def matmul_flops(m, k, n):
    return 2 * k


# %% flops_of_one_dot_product: twice the left matrix
def matmul_flops(m, k, n):
    return 2 * m * k


# %% flops_of_any_product: twice a cube
def matmul_flops(m, k, n):
    return 2 * k**3


# %% bytes_of_three_matrices: the product of all arguments
def matmul_bytes(m, k, n, bytes_per_element):
    return m * k * n * bytes_per_element


# %% bytes_of_three_matrices: three times one of them
def matmul_bytes(m, k, n, bytes_per_element):
    return 3 * k * n * bytes_per_element


# %% bytes_follow_the_element_size: the element size
def matmul_bytes(m, k, n, bytes_per_element):
    return bytes_per_element


# %% bytes_follow_the_element_size: one matrix
def matmul_bytes(m, k, n, bytes_per_element):
    return k * n * bytes_per_element


# %% rows_come_to_one_size: x as it came
def rms_norm(x, eps=1e-6):
    return x.clone()


# %% rows_come_to_one_size: signs alone
def rms_norm(x, eps=1e-6):
    return x.sign()


# %% dtype_and_device_are_kept: a copy of x
def rms_norm(x, eps=1e-6):
    return x.clone()


# %% dtype_and_device_are_kept: its squares
def rms_norm(x, eps=1e-6):
    return x * x


# %% dtype_and_device_are_kept: ones
def rms_norm(x, eps=1e-6):
    return torch.ones_like(x)


# %% any_shape_and_layout_will_do: signs alone
def rms_norm(x, eps=1e-6):
    return x.sign()


# %% any_shape_and_layout_will_do: a function of each number, which grows no further
def rms_norm(x, eps=1e-6):
    return x.tanh()
