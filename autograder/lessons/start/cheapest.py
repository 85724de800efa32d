"""The cheapest wrong functions for the checks of lesson 00, see `autograder cheapest`."""


# %% flops_of_one_dot_product: the product of all arguments
def matmul_flops(m, k, n):
    return m * k * n
