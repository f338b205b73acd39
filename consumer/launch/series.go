package launch

// maxSeries is the limit of series per metric family.
const maxSeries = 2000

// series holds one value per label set, for at most maxSeries label sets.
type series[K comparable, V any] struct {
	values   map[K]*V
	overflow K  // the label set for everything above the limit
	rest     *V // its value; nil: not needed yet
}

func newSeries[K comparable, V any](overflow K) series[K, V] {
	return series[K, V]{values: map[K]*V{}, overflow: overflow}
}

// at returns the value of k, always the same one.
func (s *series[K, V]) at(k K) *V {
	if v := s.values[k]; v != nil {
		return v
	}
	if len(s.values) >= maxSeries-1 {
		return s.other()
	}
	v := new(V)
	s.values[k] = v
	return v
}

func (s *series[K, V]) other() *V {
	if s.rest == nil {
		s.rest = new(V)
	}
	return s.rest
}
