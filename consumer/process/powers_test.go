package process

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

// isIn reports whether ns/unit is above 2^(power-1) and at most 2^power, with exact numbers.
func isIn(v, unit uint64, power int) bool {
	value := new(big.Rat).SetFrac(new(big.Int).SetUint64(v), new(big.Int).SetUint64(unit))
	limit := func(e int) *big.Rat {
		r := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(max(e, -e))))
		if e < 0 {
			r.Inv(r)
		}
		return r
	}
	return value.Cmp(limit(power-1)) > 0 && value.Cmp(limit(power)) <= 0
}

func TestPowersOfTwo(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	values := []uint64{1, 2, 3, 4, 5, 1e9, 1e9 - 1, 1e9 + 1, 5e8, 5e8 + 1, 25e7, 2e9, 2e9 + 1, 1 << 62, 1<<64 - 1}
	for range 5000 {
		values = append(values, 1+r.Uint64()>>r.Uint64N(64))
	}
	for _, v := range values {
		if v == 0 {
			continue
		}
		if p := SecondsPower(v); !isIn(v, 1e9, p) {
			t.Errorf("%d ns is not in bucket %d", v, p)
		}
		if p := Power(v); v > 1 && !isIn(v, 1, p) {
			t.Errorf("%d is not in bucket %d", v, p)
		}
	}
	if SecondsPower(0) != minPower || Power(0) != 0 || Power(1) != 0 {
		t.Errorf("0 ns in %d, 0 in %d, 1 in %d", SecondsPower(0), Power(0), Power(1))
	}
}
