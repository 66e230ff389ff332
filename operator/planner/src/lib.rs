//! Pure planning for the operator: validate, plan, build, status. Values in, values out.
