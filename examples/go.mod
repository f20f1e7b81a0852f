module github.com/laneway-dev/laneway/examples

go 1.26.0

require (
	github.com/apache/thrift v0.25.0
	github.com/laneway-dev/laneway/integrations/lanegrpc v0.0.0
	github.com/laneway-dev/laneway/integrations/lanethrift v0.0.0
	github.com/laneway-dev/laneway/lane v0.0.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
)

// Leave these out when you copy a program.
replace (
	github.com/laneway-dev/laneway/integrations/lanegrpc => ../integrations/lanegrpc
	github.com/laneway-dev/laneway/integrations/lanethrift => ../integrations/lanethrift
	github.com/laneway-dev/laneway/lane => ../lane
)
