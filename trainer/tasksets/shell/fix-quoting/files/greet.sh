echo Hello, $1!
