package lanethrift

//go:generate thrift --gen go:package_prefix=github.com/laneway-dev/laneway/integrations/lanethrift/internal/,skip_remote -out internal internal/echo/echo.thrift
//go:generate go tool -modfile=../../tools/go.mod gofumpt -w internal/echo/echo.go internal/echo/echo-consts.go internal/echo/GoUnusedProtection__.go
