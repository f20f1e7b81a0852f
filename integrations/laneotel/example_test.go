package laneotel_test

import (
	"context"
	"fmt"

	"github.com/laneway-dev/laneway/integrations/laneotel"
	"github.com/laneway-dev/laneway/lane"
	"go.opentelemetry.io/otel/propagation"
)

// A program that passes everything on through OpenTelemetry carries the color, too.
func ExamplePropagator() {
	const process = lane.Baseline // lc.Process()
	p := laneotel.Propagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}), process)

	message := propagation.MapCarrier{}
	p.Inject(lane.With(context.Background(), "green"), message)
	fmt.Println(message["v-traffic-lane"], "/", message["baggage"])

	ctx := p.Extract(context.Background(), message)
	fmt.Println(lane.From(ctx))
	// Output:
	// green / v-traffic-lane=green
	// green
}

func ExampleFromBaggage() {
	ctx := laneotel.ToBaggage(lane.With(context.Background(), "green"), lane.Baseline)
	// … OpenTelemetry takes the baggage to another program …
	other := laneotel.FromBaggage(ctx)
	fmt.Println(lane.From(other))
	// Output: green
}
