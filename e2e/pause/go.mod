module regatta.dev/regatta/e2e/pause

go 1.25.0
