module stint/examples/go

go 1.18
