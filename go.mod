module gefenckpt

go 1.26
