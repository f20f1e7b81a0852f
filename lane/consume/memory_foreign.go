package consume

import (
	"context"
	"slices"
)

// Foreign has somebody read a topic past Laneway, for tests of who is told of that, until
// leave is called. [ErrNoTopic]: there is no such topic or partition.
func (m *Memory) Foreign(c ForeignConsumer) (leave func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Partition.Index < 0 {
		_, err = m.topic(c.Partition.Topic)
	} else {
		_, err = m.log(c.Partition)
	}
	if err != nil {
		return nil, err
	}
	m.foreign[&c] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.foreign, &c)
	}, nil
}

// ForeignConsumers are those that [Memory.Foreign] was told of.
func (m *Memory) ForeignConsumers(_ context.Context, topic string) (found []ForeignConsumer, more int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.topic(topic); err != nil {
		return nil, 0, err
	}
	for c := range m.foreign {
		if c.Partition.Topic == topic {
			found = append(found, *c)
		}
	}
	slices.SortFunc(found, func(a, b ForeignConsumer) int { return a.Compare(&b) })
	more = max(len(found)-MaxForeignConsumers, 0)
	return found[:len(found)-more], more, nil
}
