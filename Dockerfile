# docker build -t emu . && docker run --rm emu
FROM python:3.11-slim
WORKDIR /emu
COPY . .
# torch first: dgl finds it installed. The constraints pin every version that was tried together.
RUN pip install --no-cache-dir -c .constraints.txt torch \
 && pip install --no-cache-dir -c .constraints.txt '.[train]' \
 && emu simulate golden
CMD ["emu", "run", "demo"]
