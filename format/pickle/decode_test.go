package pickle

import (
	"os"
	"path/filepath"
	"testing"
)

// Every pickle that a real checkpoint holds is read, written and read again.
func TestRealPicklesRoundTrip(t *testing.T) {
	files, err := filepath.Glob("testdata/*-*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test pickles: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			v, err := Decode(data, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, protocol := range []int{2, 4} {
				again, err := Append(nil, v, EncodeOptions{Protocol: protocol})
				if err != nil {
					t.Fatal(err)
				}
				w, err := Decode(again, Options{})
				if err != nil {
					t.Fatalf("protocol %d: %v", protocol, err)
				}
				if !Equal(v, w) {
					t.Errorf("protocol %d: the value read back differs", protocol)
				}
			}
		})
	}
}
