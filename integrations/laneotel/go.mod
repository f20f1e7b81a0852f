module github.com/laneway-dev/laneway/integrations/laneotel

go 1.26.0

replace github.com/laneway-dev/laneway/lane => ../../lane
