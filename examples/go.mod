module github.com/laneway-dev/laneway/examples

go 1.26.0

require (
	github.com/apache/thrift v0.25.0
	github.com/laneway-dev/laneway/integrations/jetstream v0.0.0
	github.com/laneway-dev/laneway/integrations/lanegrpc v0.0.0
	github.com/laneway-dev/laneway/integrations/lanethrift v0.0.0
	github.com/laneway-dev/laneway/lane v0.0.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/antithesishq/antithesis-sdk-go v0.8.0-default-no-op // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/minio/highwayhash v1.0.4 // indirect
	github.com/nats-io/jwt/v2 v2.8.2 // indirect
	github.com/nats-io/nats-server/v2 v2.15.2 // indirect
	github.com/nats-io/nats.go v1.55.0 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
)

// Leave these out when you copy a program.
replace (
	github.com/laneway-dev/laneway/integrations/jetstream => ../integrations/jetstream
	github.com/laneway-dev/laneway/integrations/lanegrpc => ../integrations/lanegrpc
	github.com/laneway-dev/laneway/integrations/lanethrift => ../integrations/lanethrift
	github.com/laneway-dev/laneway/lane => ../lane
)
