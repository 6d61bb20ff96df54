-- Checks that `text` is a state in format 1 of the strategy whose letter is `tag`: the letter, followed by the fields
-- listed at the top of the strategy's file, at least `bytes` in all. A later format begins with the letter + 128 and a
-- byte that holds its number. It is an error here, so that a server that does not know a format neither misreads nor
-- overwrites it; so is a string that another program or strategy wrote.
return function(text, tag, bytes)
  local first = text:byte()
  if first == tag and #text >= bytes then
    return
  end
  if first == tag + 128 then
    error('state was written by a newer version of trypema', 0)
  end
  error('the key holds something that is not a state of this strategy', 0)
end
