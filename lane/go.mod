module github.com/laneway-dev/laneway/lane

go 1.26.0
