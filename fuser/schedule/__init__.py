"""How a fusion is computed: loop domains, directives, and recipes that choose them."""
