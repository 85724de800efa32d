"""The cheapest wrong functions for the checks of lesson 17, see `autograder cheapest`."""


# %% doubles: the argument returned
def double(x):
    return x
