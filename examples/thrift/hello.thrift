namespace go hello

service Hello {
  string greet(1: string name)
}
