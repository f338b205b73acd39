package nsys

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// missEvents notes that a table of events is absent. By default, nsys exports no empty tables. So the absence is normal
// if rows of other tables show that CUDA was traced, and no successful call made what the table has. Memory events have
// a flag of their own, so nothing shows that they were traced.
func (c *converter) missEvents(ctx context.Context, s *source) error {
	m := Missing{Name: s.table, Effect: s.effect}
	if s.table != memoryTable {
		traced, err := c.traced(ctx)
		if err != nil {
			return err
		}
		call, err := c.calledBy(ctx, s.calls)
		if err != nil {
			return err
		}
		if m.Omitted = traced && call == ""; call != "" {
			m.Effect += " are known, but the program called " + call
		}
	}
	c.missing = append(c.missing, m)
	return nil
}

// traced reports whether a table has rows of CUDA.
func (c *converter) traced(ctx context.Context) (found bool, err error) {
	for _, table := range []string{callTable, kernelTable, copyTable, setTable, memoryTable} {
		if c.has(table) && !found && err == nil {
			err = c.query(ctx, "SELECT 1 FROM "+table+" LIMIT 1", func([]any) { found = true })
		}
	}
	return found, err
}

// plain is the name of a function in C.
var plain = regexp.MustCompile(`^\w+`)

// calledBy returns the name of a successful call that matches a pattern; "": there is none.
func (c *converter) calledBy(ctx context.Context, patterns []string) (name string, err error) {
	if !c.has(callTable, "nameId") {
		return "", nil
	}
	names := "s.value GLOB '" + strings.Join(patterns, "' OR s.value GLOB '") + "'"
	success := "1"
	if c.has(callTable, "returnValue") {
		success = "coalesce(r.returnValue, 0) = 0"
	}
	var id any
	query := "SELECT r.nameId FROM %s r WHERE r.nameId IN (SELECT s.id FROM StringIds s WHERE %s) AND %s LIMIT 1"
	err = c.query(ctx, fmt.Sprintf(query, callTable, names, success), func(row []any) { id = row[0] })
	if err != nil {
		return "", err
	}
	name, err = c.names.call(id)
	return plain.FindString(name), err
}
