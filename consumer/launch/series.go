package launch

// maxSeries bounds a metric family.
const maxSeries = 2000

// series is one value for each of at most maxSeries label sets.
type series[K comparable, V any] struct {
	values   map[K]*V
	overflow K  // the label set of all that come too late
	late     *V // their value; nil without
}

func newSeries[K comparable, V any](overflow K) series[K, V] {
	return series[K, V]{values: map[K]*V{}, overflow: overflow}
}

// at gives the value of k, for ever the same.
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
	if s.late == nil {
		s.late = new(V)
	}
	return s.late
}
