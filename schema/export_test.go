package schema

// ColumnOf returns column id of a batch, a row of Columns.
func ColumnOf(b *Batch, id int) *Column { return &b.columns[id] }
