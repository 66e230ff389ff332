//! The operator at the edge: watches, dereference, apply, leader election.
