sort "$1"
