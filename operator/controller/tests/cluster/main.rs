//! The operator against a real API server. Pods are brought up by hand: there is no kubelet here, only a stand-in
//! for engines that answers on the pods' addresses.

mod election;
mod engine;
mod faults;
mod lifecycle;
mod operator;
mod rollout;
mod rules;
mod trouble;
