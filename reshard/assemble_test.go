package reshard

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"gefenckpt/internal/fault"

	"github.com/google/go-cmp/cmp"
)

// TestAssembleIsNew plans the ranks of random targets in parts, passes their
// records through JSON, and compares with the plan of all.
func TestAssembleIsNew(t *testing.T) {
	rng := newRand(21)
	lossy := 0
	for n := range 300 {
		k := &maker{rng: rng, world: 1 + rng.IntN(4), params: 1 + rng.IntN(4), rows: 9, width: 12, codewords: 256, everywhere: n%3 > 0, chunked: n%2 == 0}
		m := k.source()
		o := Options{World: 1 + rng.IntN(6), Fidelity: []Fidelity{Lossless, Balanced, Reference}[n%3], MaxGrowth: 0.05}
		whole, err := New(&m.topology, m, o)
		if err != nil {
			continue // fidelity tests have what is refused
		}
		if whole.loses() {
			lossy++
		}
		var records []RankRecord
		for first := 0; first < o.World; {
			p := o
			p.First, p.Last = first, min(first+1+rng.IntN(3), o.World)
			part := planned(t, m, p)
			for r := p.First; r < p.Last; r++ {
				records = append(records, part.Record(r))
			}
			first = p.Last
		}
		rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
		text, err := json.Marshal(records)
		if err == nil {
			records = nil
			err = json.Unmarshal(text, &records)
		}
		if err != nil {
			t.Fatal(err)
		}
		joined, err := Assemble(&m.topology, o, records)
		if err != nil {
			t.Fatalf("case %d: %v", n, err)
		}
		type totals struct {
			BytesBefore, BytesAfter, ElementsBefore, ElementsAfter, LowerBound int64
			Error                                                              Error
		}
		sums := func(p *Plan) totals {
			return totals{p.BytesBefore, p.BytesAfter, p.ElementsBefore, p.ElementsAfter, p.LowerBound, p.Error}
		}
		if diff := cmp.Diff(sums(whole), sums(joined)); diff != "" {
			t.Fatalf("case %d, %s: %s", n, o.Fidelity, diff)
		}
		for r := range whole.Ranks {
			want, got := whole.Record(r), joined.Record(r)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("case %d, %s, rank %d: %s", n, o.Fidelity, r, diff)
			}
			if whole.Ranks[r].Error != joined.Ranks[r].Error || whole.Ranks[r].Bytes != joined.Ranks[r].Bytes {
				t.Fatalf("case %d, %s, rank %d: other sums", n, o.Fidelity, r)
			}
		}
	}
	if lossy < 50 {
		t.Errorf("only %d plans lose anything", lossy)
	}
}

func TestAssembleRefuses(t *testing.T) {
	k := &maker{rng: newRand(22), world: 2, params: 2, rows: 9, width: 4, codewords: 256, everywhere: true, chunked: true}
	m := k.source()
	o := Options{World: 3, Fidelity: Lossless}
	plan := planned(t, m, o)
	records := []RankRecord{plan.Record(0), plan.Record(1), plan.Record(2)}
	bad := plan.Record(2)
	bad.Shards = slices.Clone(bad.Shards)
	bad.Shards[0].Period = 1 << 40
	for _, c := range []struct {
		records []RankRecord
		kind    fault.Kind
		text    string
	}{
		{records[:2], fault.Incomplete, "rank 2 is missing"},
		{append(records[:2:2], records[1]), fault.Corrupt, "twice"},
		{append(records[:2:2], bad), fault.Corrupt, "blocks of"},
		{append(records[:2:2], RankRecord{Rank: 2}), fault.Corrupt, "2 parameters"},
	} {
		_, err := Assemble(&m.topology, o, c.records)
		if fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want a %v fault with %q", err, c.kind, c.text)
		}
	}
}
