module github.com/laneway-dev/laneway/integrations/lanethrift

go 1.26.0

require github.com/laneway-dev/laneway/lane v0.0.0

require github.com/apache/thrift v0.25.0

replace github.com/laneway-dev/laneway/lane => ../../lane
