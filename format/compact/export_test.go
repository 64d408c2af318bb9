package compact

// RuleNumbers are the numbers of all rules, for the test that breaks each.
func RuleNumbers() []string {
	var all []string
	for _, r := range outerRules {
		all = append(all, r.number)
	}
	for _, r := range payloadRules {
		all = append(all, r.number)
	}
	for _, r := range finalRules {
		all = append(all, r.number)
	}
	return all
}
