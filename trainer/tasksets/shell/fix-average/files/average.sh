s=0
for n in "$1"; do
  s=$n
done
echo $((s / $#))
