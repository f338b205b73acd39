package simulate

// agenda orders members by due time, then by host. It implements heap.Interface.
type agenda []*member

func (a agenda) Len() int { return len(a) }

func (a agenda) Less(i, j int) bool {
	return a[i].due < a[j].due || a[i].due == a[j].due && a[i].index < a[j].index
}

func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

func (a *agenda) Push(x any) { *a = append(*a, x.(*member)) }

func (a *agenda) Pop() any {
	last := len(*a) - 1
	m := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return m
}
