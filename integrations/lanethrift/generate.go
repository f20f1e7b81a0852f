package lanethrift

//go:generate thrift --gen go:package_prefix=github.com/laneway-dev/laneway/integrations/lanethrift/internal/,skip_remote -out internal internal/echo/echo.thrift
