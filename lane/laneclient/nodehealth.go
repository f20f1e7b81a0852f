package laneclient

import "time"

// NodeHealth is what [Client.AdminHandler] answers to GET /healthz: how a process that
// routes is, as far as it knows itself.
type NodeHealth struct {
	Health
	Node       string    `json:"node"`                 // as it calls itself in explanations
	Revision   uint64    `json:"revision"`             // of its view
	StaleSince time.Time `json:"stale_since,omitzero"` // of its view; zero: it is fresh
	Time       time.Time `json:"time"`                 // its clock
	// Listen has the URLs of what it serves beside this, by role; of a gateway those of
	// "gateway", its edge, and "inside".
	Listen map[string]string `json:"listen,omitempty"`
}

// Health says how this process is. It is well as long as it routes, also by a stale
// view, which it tells of.
func (c *Client) Health() NodeHealth {
	v := c.View()
	role := RoleStatus{Role: c.cfg.Role, Ready: true}
	if v.Stale {
		role.Reason = "the view is stale: the control plane cannot be reached, or lags"
	}
	return NodeHealth{
		Health: Health{OK: true, Roles: []RoleStatus{role}},
		Node:   c.node(), Revision: v.Revision, StaleSince: v.StaleSince, Time: time.Now(),
	}
}
