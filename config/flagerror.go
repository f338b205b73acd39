package config

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// expected is the values that the flags of a type take. Other types explain their errors themselves.
var expected = map[string]string{
	"bool": "true or false", "duration": "a number with a unit, such as 5s, 10m or 1h", "float64": "a number",
	"int": "a whole number", "uint32": "a whole number of 0 or more", "uint64": "a whole number of 0 or more",
}

// FlagError returns an error of pflag in the words of the other errors: the flag, its value, and the values that it
// takes. It returns other errors unchanged.
func FlagError(err error) error {
	var invalid *pflag.InvalidValueError
	var none *pflag.ValueRequiredError
	switch {
	case errors.As(err, &none):
		return fmt.Errorf("--%s: no value given", none.GetFlag().Name)
	case !errors.As(err, &invalid):
		return err
	}
	f := invalid.GetFlag()
	want, known := expected[f.Value.Type()]
	switch {
	case !known:
		return fmt.Errorf("--%s: %w", f.Name, invalid.Unwrap())
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("--%s %q: the number is out of range", f.Name, invalid.GetValue())
	}
	return fmt.Errorf("--%s %q: expected %s", f.Name, invalid.GetValue(), want)
}
